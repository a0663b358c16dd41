"""The operations room: one page for the person on duty, and the steps that can be taken from it."""
