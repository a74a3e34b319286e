"""One module for each kind of document. They run only in the worker process, where a document can do no harm."""
