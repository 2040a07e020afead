export PYTORCH_HIP_ALLOC_CONF='expandable_segments:True,max_split_size_mb:64'
