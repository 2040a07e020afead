export VLLM_UNTUNE_FILE="/tmp/vllm_untuned.csv"

export VLLM_TUNE_FILE="$(pwd)/vllm/tuned.csv"

export HIP_FORCE_DEV_KERNARG=1

export DEBUG_CLR_GRAPH_PACKET_CAPTURE=1
