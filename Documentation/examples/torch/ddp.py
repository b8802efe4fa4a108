# SPDX-License-Identifier: LGPL-2.1-only OR MIT
import torch, torch.distributed as dist, towline.torch
dist.init_process_group("towline")
with towline.torch.allocator():                     # weights in the pool
    net = torch.nn.Linear(4096, 256)
model = towline.torch.DistributedDataParallel(net)  # and gradients
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(8, 4096)).square().mean().backward()
    optimizer.step()
print("rank", dist.get_rank(), towline.torch.stats()["staged_bytes"], "bytes were copied")
