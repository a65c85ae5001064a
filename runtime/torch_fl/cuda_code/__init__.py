"""Code written for CUDA on fl devices: what torch_fl.cuda_compat puts in place, and takes away again."""
