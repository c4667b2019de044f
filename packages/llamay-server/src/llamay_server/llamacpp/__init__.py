"""llama.cpp's dialect: completion, infill, and the routes about the server, its tokens and its adapters."""
