"""What a PyTorch user imports: every vendor's plugin as a logical device `fl:N` of stock PyTorch.

    import torch, torch_fl
    torch_fl.list_devices()
    torch.randn(3, 3, device="fl:0")
"""
