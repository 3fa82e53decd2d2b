return 3
