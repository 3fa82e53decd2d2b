-- ends by: instructions
for w in ("a"):rep(30000):gmatch(".-.-.-b") do end
