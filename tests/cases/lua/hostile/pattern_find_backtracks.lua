-- ends by: instructions
return string.find(("a"):rep(60), ("a*"):rep(40) .. "b")
