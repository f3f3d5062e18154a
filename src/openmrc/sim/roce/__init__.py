"""RoCEv2: reliable connections over one path, DCQCN and priority flow control."""
