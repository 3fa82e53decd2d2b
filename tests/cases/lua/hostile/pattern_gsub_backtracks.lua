-- ends by: instructions
return (("a"):rep(30000):gsub(".-.-.-b", ""))
