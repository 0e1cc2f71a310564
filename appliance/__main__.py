"""`python -m appliance`: the command line without its console script."""

from appliance.commands.main import main

main()
