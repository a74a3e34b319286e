async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}, 20 C"
