"""A whole cluster from one description: `python -m esync.launch clusters/NAME.yaml`.

What is to be run, as data; nothing here starts anything:
    yaml_text     YAML with the line of every key
    flags         the worker's flags, as the section `train` and the command line give them
    fields        the values that a description is made of
    description   what may stand in it
    hosts         which of its hosts are this machine
    ground        addresses, ports and cores, handed out to the processes
    plan, spec    description → the commands of all processes, and those as data

Running it:
    command       the program
    folders       where the logs go, and the earlier ones
    ports         free ports, held for the job
    children      starting one process here or there, and ending it
    process_shim  what runs in front of it, and ends all that it has started
    processes     its output, its log, how it ended
    replacements  what becomes of one that has ended where it should not have
    unreachable   those whose hosts do not answer: when and where they are started again
    supervisor    from the first process that starts to the last one that ends
    rows, view    what is seen meanwhile
    report        what is said at the end

Other machines:
    ssh           command lines
    lifeline      how both ends notice that the other one is gone
    agents        asking hosts; complaints: what they say, in a sentence
    survey        what is asked before a job; reach: can they reach one another; gather: the logs, after it
    agent         is what ssh runs there, beside the processes
"""
