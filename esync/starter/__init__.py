"""`esync init`: a cluster description and a training program to start from.

The two files are those of `project/`; the description gets the workers that are asked for. May
import `runtime`.
"""
