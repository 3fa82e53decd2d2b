-- ends by: instructions
while true do pcall(string.find, ("a"):rep(60), ("a*"):rep(40) .. "b") end
