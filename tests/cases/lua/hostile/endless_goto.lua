-- ends by: instructions
::again:: goto again
