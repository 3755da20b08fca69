"""What a tool is: its schema, its contract, its context, and the words the model reads.

Nothing here starts a body; that is the business of `endstop.work`, behind the gate.
"""
