"""BBC News topics with MiniLM: a real result on a fresh machine, with no model or data hub.

2,225 BBC articles in five topics (business, entertainment, politics, sports, tech) and the weights of
all-MiniLM-L6-v2 both come with the `demo` extra. 250 articles train, 250 choose the checkpoint, 500 test;
each is cut to 256 tokens, the first 128 and the last (Sun et al. 2019, head + tail). Layer-wise learning rates, the
slanted triangular schedule and gradual unfreezing (Howard & Ruder 2018) are on; re-initialising a block did not help
here (`make bench` compares them with stock Trainer).

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        --num_cpu_threads_per_process 2 recipes/bbc_news.py

Several GPUs: `--num_processes 4`; several processes on CPUs: `torchrun --nproc_per_node 2 recipes/bbc_news.py
--use_cpu True`. Any option of the run can be changed: `--learning_rate 3e-5 --unfreezing none --train_rows 1000`;
`--help` lists them. The same command again resumes a run that was interrupted.
"""

from hf_ftstrategies.pipeline.presets import BBC_NEWS
from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="bbc_news",
    title="BBC News topics, 250 training articles",
    presets=BBC_NEWS,
)

if __name__ == "__main__":
    main(RECIPE)
