-- ends by: script load: mode "b" is bytecode; only text is loaded
return load("return 1", "x", "b")
