"""The endpoint: frames in, frames out, and the thread that runs the engine between them."""
