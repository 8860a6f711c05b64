"""What is measured, each against stock Trainer in one run; results/ holds the figures with machine and versions."""
