"""What every process needs: errors, files, signals, child processes, clocks, output, MXNet.

May import `config` and nothing else of the package; everything may import this.
"""
