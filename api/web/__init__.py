"""The dashboard: pages for people, made of nothing but calls of the API."""
