"""Timer messages: kept in the timer topic until their second has come, then put where they belong."""
