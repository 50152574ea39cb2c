"""Short texts of different kinds for a first look at a model; written for this project."""

PARAGRAPHS = (
    # A story.
    "The ferry had stopped for the night, so Ilse walked back along the harbour wall and counted the lamps. Nine were "
    "lit, one more than yesterday. Somebody had mended the lamp by the customs house, and under it, on an upturned "
    "crate, sat an old man with a violin case on his knees. He did not look up. When she had almost passed he said, as "
    "if they had been talking for an hour, that the wind would turn before morning and that she should not trust the "
    "captain who said otherwise. She laughed, then saw that the case was empty and that his hands were wet.",
    # An explanation.
    "A heat pump moves heat from a cold place to a warm one. A liquid that boils at a low temperature takes up heat "
    "outside and becomes a gas. A compressor squeezes the gas, which makes it hot, and inside the house the hot gas "
    "gives its heat to water in a pipe and becomes liquid again. Then a valve lets the pressure drop and the round "
    "begins anew. Because most of the heat is moved and not made, one unit of electric energy brings three or four "
    "units of warmth. The colder it is outside, the harder the compressor has to work, and the smaller is the gain.",
    # A program.
    "def merge(left, right):\n    merged = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n"
    "        if left[i] <= right[j]:\n            merged.append(left[i])\n            i += 1\n        else:\n"
    "            merged.append(right[j])\n            j += 1\n    return merged + left[i:] + right[j:]\n\n\n"
    "def sort(items):\n    if len(items) < 2:\n        return items\n    middle = len(items) // 2\n"
    "    return merge(sort(items[:middle]), sort(items[middle:]))\n",
    # A conversation.
    '"Did you bring the key?" asked Tomas.\n"Which key?"\n"The one to the cellar. I told you twice."\n"You told me to '
    'bring the map."\n"The map and the key."\n"I have the map," she said, and held it up. "It shows a second door."\n'
    '"There is no second door."\n"Then why is it on the map?"\nHe took it from her, turned it round and held it to the '
    'light. "Because," he said slowly, "this is not the map of our house. Where did you find it?"\n"On your desk."\n'
    '"I have never seen it before."\n"Well, somebody has been sitting at your desk, then."',
    # A list with numbers.
    "Stock at the end of March: 140 boxes of nails, 62 hinges, 18 padlocks, 7 rolls of wire (two of them damp). Sold "
    "in April: 95 boxes of nails, 40 hinges, 3 padlocks, 1 roll of wire. Ordered on 4 May: 120 boxes of nails at 3.2, "
    "50 hinges at 1.15, 12 rolls of wire at 8.40, by 19 May. Returned: 2 padlocks without a key. To be checked "
    "in June: the price of wire, which rose by 6 percent in a year, and the 22 hinges that nobody has found since the "
    "move. Total of the order: 384.00 + 57.50 + 100.80 = 542.30, less 2 percent if paid within ten days.",
    # An instruction.
    "Wash the lentils and leave them in cold water for an hour. Chop two onions and cook them gently in oil until they "
    "are soft but not brown. Add the lentils, a spoon of cumin, and water to cover all of it by a finger. Let it "
    "simmer without a lid; stir now and then, and add water if it gets dry. After half an hour, taste. If the lentils "
    "are still hard, wait. Salt goes in last, because it keeps the skins tough. Take the pot off the fire, press half "
    "a lemon over it, cover it with a cloth and let it rest for ten minutes before you carry it to the table.",
)
"""Six paragraphs of about 130 tokens each."""

REACTIONS = (
    # Two esters, an amide, a reduction, a coupling of two rings, a protection.
    "CC(=O)O.OCCc1ccccc1>>CC(=O)OCCc1ccccc1",
    "O=C(O)c1ccc(Cl)cc1.CCCO>>CCCOC(=O)c1ccc(Cl)cc1",
    "O=C(Cl)c1ccc(F)cc1.NCC1CCCCC1.CCN(CC)CC>>O=C(NCC1CCCCC1)c1ccc(F)cc1",
    "COC(=O)c1ccc2ccccc2c1.[Li+].[AlH4-]>>OCc1ccc2ccccc2c1",
    "Brc1ccc(C#N)cc1.OB(O)c1ccc(OC)cc1.O=C([O-])[O-].[K+].[K+]>>COc1ccc(-c2ccc(C#N)cc2)cc1",
    "NCCc1c[nH]c2ccccc12.CC(C)(C)OC(=O)OC(=O)OC(C)(C)C>>CC(C)(C)OC(=O)NCCc1c[nH]c2ccccc12",
)
"""Six reactions as SMILES, for the model that reads nothing else."""
