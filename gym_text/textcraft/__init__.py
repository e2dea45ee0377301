"""TextCraft: craft an item of Minecraft out of other items, by recipes."""
