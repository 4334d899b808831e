"""Beyond one machine: stretches of a log, counted apart and added up once each."""
