"""A store over HTTP: a REST API and, in the same process, a web page."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before anything here imports gradio
