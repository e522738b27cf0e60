"""A store over HTTP: a REST API and, in the same process, a web page that uses it."""
