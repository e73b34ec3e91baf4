"""What requests cost in numbers that do not depend on the machine's mood, and a guard that keeps them from growing.

Times differ from run to run; how many functions are called and instructions executed to answer a request does not.
"""
