"""Your own texts and labels, with settings that are a good start on any encoder.

    accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
        recipes/own_data.py --dataset reviews.csv --text_column review --label_column stars --output_dir outputs/reviews

`--dataset` takes a CSV, TSV, JSONL or Parquet file, a folder with `train.csv`, `validation.csv`, `test.csv` (or the
other formats), a folder with a folder of `.txt` files for each class, or a Hub id. A single file is cut into train,
validation and test, stratified by label, equal texts never in two parts. Rows without text or label are an error;
`--on_bad_rows drop` leaves them out and counts them. Two text columns (`--text_pair_column`) make a pair task;
`--task regression` and `--task multi_label` are there too. A set larger than memory or disk is streamed:
`--streaming True --max_steps 10000`, and `--validation_rows 2000` where it has no validation split.
"""

from hf_ftstrategies.pipeline.recipe import Recipe, main

RECIPE = Recipe(
    name="own_data",
    title="Own data",
    presets={
        "dataset": "",
        "model": "minilm",
        "max_length": 256,
        "global_batch_size": 16,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 32,
        "num_train_epochs": 4,
        "learning_rate": 1e-4,
        "layer_decay": 0.95,
        "evaluations": 4,
        "load_best_model_at_end": True,
        "save_total_limit": 1,
        "logging_steps": 10,
        "train_sampling_strategy": "group_by_length",
        "report_to": "none",
    },
)

if __name__ == "__main__":
    main(RECIPE)
