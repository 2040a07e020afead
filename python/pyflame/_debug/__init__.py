"""`pyflame debug run`: runs a program with the debug allocator, and says which op accessed memory that is not its own."""
