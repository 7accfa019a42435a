"""Data sets that are uploaded: received, checked line by line, stored, read and counted."""
