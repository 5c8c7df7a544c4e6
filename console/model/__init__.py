"""What is shown, as functions of what was answered. Nothing here waits, asks, or looks at a clock."""
