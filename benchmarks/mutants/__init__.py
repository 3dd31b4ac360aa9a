"""Do the tests notice? Small changes to the checker and the adapters, each against the tests that reach it."""
