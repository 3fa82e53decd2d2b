-- ends by: instructions
while true do local s = (""):rep(1 << 62) end
