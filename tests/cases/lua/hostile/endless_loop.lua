-- ends by: instructions
while true do end
