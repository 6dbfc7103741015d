"""From the workers' log files to tables and figures; needs no MXNet.

`summarize.py` gathers `iter-N.txt` files into one summary per mode, `plot.py` compares the summaries.
"""
