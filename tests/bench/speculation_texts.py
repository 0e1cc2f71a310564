"""Work that copies from its prompt, and work that does not."""

from typing import Final

_STORY: Final = (
    "The lighthouse at Cape Arnold was built in 1871 by a crew of forty masons who carried every "
    "stone up the cliff on their backs. For ninety years its lamp was fed with oil by the keeper "
    "and his family, who lived in the two rooms below. In the winter of 1903 a storm broke the "
    "great lens, and for six nights the keeper's daughter Ellen rang the fog bell by hand, once "
    "every minute, until a new lens came by ship from the mainland. The bell still hangs beside "
    "the door."
)
_MINUTES: Final = (
    "Minutes of the meeting of 12 March. Present: Anna Berg, Murat Demir, Chloe Martin and Jan "
    "Novak. The budget for the new library was approved with three votes to one. Murat will ask "
    "two builders for offers before the end of April. The old reading room stays open until the "
    "move is complete. Chloe reported that the roof of the east wing leaks again after the storm "
    "of last week, and that the repair will cost about four thousand euros. The next meeting is "
    "on 9 April at ten o'clock."
)
_CODE: Final = """def load_users(path, limit):
    users = []
    with open(path) as file:
        for line in file:
            name, email, age = line.strip().split(",")
            users.append({"name": name, "email": email, "age": int(age)})
            if len(users) >= limit:
                break
    return users


def find_user(users, name):
    for user in users:
        if user["name"] == name:
            return user
    return None
"""
_JSON: Final = """{
  "order": 4711,
  "customer": {
    "name": "Anna Berg",
    "city": "Oslo",
    "country": "Norway"
  },
  "items": [
    {
      "sku": "A-100",
      "name": "lamp",
      "quantity": 2,
      "price": 39.90
    },
    {
      "sku": "B-200",
      "name": "table",
      "quantity": 1,
      "price": 249.00
    }
  ],
  "shipped": false
}"""
_LIST: Final = """- apples, 2 kg, 3.20
- pears, 1 kg, 2.10
- plums, 3 kg, 5.40
- grapes, 1 kg, 4.00
- lemons, 500 g, 1.20
- oranges, 2 kg, 3.60
- cherries, 1 kg, 6.50
- figs, 250 g, 2.80"""

COPIES: Final = {
    "a text repeated": f"Repeat the following text exactly, word for word:\n\n{_STORY}",
    "a list repeated": f"Write this list again as it is:\n\n{_LIST}",
    "JSON repeated": f"Repeat this JSON exactly:\n\n```json\n{_JSON}\n```",
    "code edited": "Write this file again with the function find_user renamed to get_user:\n\n"
    f"```python\n{_CODE}```",
    "a text summarised": f"Summarise this text:\n\n{_MINUTES}",
}

QUESTIONS: Final = (
    "Write a short story about a fox and a river.",
    "Explain how a bicycle stays upright.",
    "Describe the water cycle for children.",
    "What are the advantages and disadvantages of electric cars?",
    "Give me ten tips for learning a new language.",
    "Write a letter to a landlord about a broken heater.",
    "Tell me about the history of Istanbul.",
    "List the planets of the solar system with one fact each.",
)
