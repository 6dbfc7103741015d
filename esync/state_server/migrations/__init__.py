"""How the tables of the history came about; applied at each start."""
