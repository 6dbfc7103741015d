"""What workers and parameter servers say to each other: no time, threads, sockets or MXNet in here."""
