"""Amazon Bedrock's Converse API: `converse_model` does the talking, `converse_request` writes, `converse_answer` reads."""
