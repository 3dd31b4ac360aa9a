"""How the jobs of a sweep are spread over processes and machines, kept, and shown: nothing here decides a result."""
