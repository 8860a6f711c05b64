"""What the optimizer is made of: parameter groups by depth, BERTAdam, schedules, phases."""
