"""Amazon Bedrock's Converse API: `converse_model` makes the requests, `converse_request` writes their bodies, `converse_answer` reads the events."""
