"""What every process of the package stands on: errors, files, signals, processes, time, and the import of MXNet.

May import `config` and nothing else of the package; everything may import this.
"""
