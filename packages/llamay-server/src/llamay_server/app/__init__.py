"""The application as a whole: all routes behind one gate, the OpenAPI document, listening and draining."""
