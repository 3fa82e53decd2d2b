return {run = {notes = os.getenv("HOME")}}
