#!/bin/bash
echo "Setting up ROCm 6.3 ML environment..."

export HIP_VISIBLE_DEVICES=0,1
export PYTORCH_ROCM_ARCH=gfx1100
export TORCH_BLAS_PREFER_HIPBLASLT=0

export PYTORCH_HIP_ALLOC_CONF='expandable_segments:True,max_split_size_mb:128'
export GPU_SINGLE_ALLOC_PERCENT=90
export GPU_MAX_ALLOC_PERCENT=100
export HIP_HIDDEN_FREE_MEM=256

export HSA_ENABLE_SDMA=0
export HSA_ENABLE_INTERRUPT=0
export HSA_UNALIGNED_ACCESS_MODE=1
export TORCH_COMPILE_BACKEND=inductor

export NCCL_DEBUG=WARN
export NCCL_SOCKET_IFNAME=lo

echo "ROCm 6.3 environment configured successfully"
