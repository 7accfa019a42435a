"""Tools around a model: a small one to try things with, and text out of one."""
