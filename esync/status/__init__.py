"""What a state server knows of its jobs, for people at a terminal.

client    asks the JSON API
view      a job as tables
"""
