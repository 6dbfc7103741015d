"""A whole cluster from one description: `python -m esync.launch clusters/NAME.yaml`.

What is to be run, as data; nothing here starts anything:
    yaml_text     YAML with the line of every key
    flags         the worker's flags, as the section `train` and the command line give them
    description   what may stand in a description
    hosts         which of its hosts are this machine
    ground        addresses, ports and cores, handed out to the processes
    plan, spec    description → the commands of all processes, and those as data

Running it:
    folders       where the logs go, and the earlier ones
    ports         free ports, held for the job
    processes     starting one process, keeping its output, ending it
    supervisor    from the first process that starts to the last one that ends
    rows, view    what is seen meanwhile
    report        what is said at the end
"""
